"""The protos of gRPC, and the code that is made of them: `make proto`."""
