"""A receiver's process, its clients, network and Kafka in one event loop with a virtual clock: one seed decides all of it."""
