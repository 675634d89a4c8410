"""What operators do: each act is checked, audited and journalled in one transaction."""
