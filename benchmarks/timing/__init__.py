"""How honest the timing is: a study on the card of this machine."""
