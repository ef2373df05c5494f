"""The ranks a program believes in: process groups, collectives and stores, of which one rank is really
followed."""
