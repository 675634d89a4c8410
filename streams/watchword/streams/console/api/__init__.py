"""`/api/v1`: the operations of operators over HTTP, for programs; with a description of itself."""

PREFIX = "/api/v1"
