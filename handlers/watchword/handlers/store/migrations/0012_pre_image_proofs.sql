-- An image's second fact may be another attestor's proof: `attestor:<id>`. The last release refuses such images.

ALTER TABLE images DROP CONSTRAINT images_second_fact_check;
ALTER TABLE images ADD CONSTRAINT images_second_fact_check CHECK (
    second_fact IN ('approval', 'unsafe_single_factor') OR second_fact ~ '^attestor:[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$'
) NOT VALID;
ALTER TABLE images VALIDATE CONSTRAINT images_second_fact_check;
