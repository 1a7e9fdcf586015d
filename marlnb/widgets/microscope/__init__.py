"""The microscope: one recorded episode looked into, step by step, with everything that is known of it in step."""
