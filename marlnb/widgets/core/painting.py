"""PAINTING: held by whoever draws an environment, since pygame is neither imported nor drawn with by two threads."""

from __future__ import annotations

import threading

PAINTING = threading.RLock()
