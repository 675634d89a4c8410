"""What a process of the deployment imports when the fault suite starts it, and nobody else does."""
