"""A TPM 2.0: its endorsement key, an attestation key in the same chip, and what it measured at boot."""
