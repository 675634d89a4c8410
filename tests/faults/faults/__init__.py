"""The faults: what is done to a deployment, and how it is known that it was really done."""
