"""`watchword doctor`: is this deployment as it has to be? Each check is one finding or more."""
