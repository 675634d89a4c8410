-- An enrolled TPM may have to wait for an operator at its first join; null, of rows before this, is no.
ALTER TABLE tpm_endorsements ADD COLUMN approval boolean;
