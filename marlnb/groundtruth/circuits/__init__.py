"""The circuits, one file each; a file registers its own by `@circuit`."""
