"""Mutation testing: how many planted changes of a module its own tests notice."""
