"""The console: `/api/v1` for programs and pages for people. It has PostgreSQL, and no key of the deployment."""
