"""Tasks of the kit: each is a program that writes into the folder it is given."""
