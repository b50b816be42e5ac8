"""What tests are made of: servers, databases, clocks, faults, processes. No test is in here."""
