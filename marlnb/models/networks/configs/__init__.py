"""The options of the networks. Free of torch until a network is built."""
