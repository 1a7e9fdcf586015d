"""What the tests of batches share."""

from tests.batch.batches import make as make
