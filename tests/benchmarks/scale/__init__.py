"""How a deployment grows: more workers, more gateways, and what a relay's death costs. `make scale`."""
