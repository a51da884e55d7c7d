"""One function per figure: arrays in, matplotlib Figure out."""
