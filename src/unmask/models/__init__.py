"""Networks, the files they are published in, and the devices they run on."""
