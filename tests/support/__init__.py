"""What tests of several folders need: networks, processes, stores, compilers and machines that are made up."""
