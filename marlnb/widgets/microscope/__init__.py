"""The microscope: one recorded episode, step by step, with everything that is known about it in step."""
