"""Authentication and authorization, the same for every protocol of the server."""
