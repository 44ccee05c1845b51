"""One module per trace format: text in, raw jobs out, a malformed row refused with its line and reason."""
