"""The TPM of this machine, over tpm2-pytss (the extra `tpm`), which is imported when it is opened."""
