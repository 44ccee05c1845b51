"""What iterations are made of: of a profile run, between two beats, of a script without a line of ours."""
