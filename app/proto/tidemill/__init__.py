"""As the packages of the protos are named."""
