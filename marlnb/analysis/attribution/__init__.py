"""Attribution: which observations and units drive an action, a value or a unit."""
