"""What passes between an oracle and a confined process."""
