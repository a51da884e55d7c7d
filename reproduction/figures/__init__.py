"""The paper's figures: one function per figure, records in, matplotlib Figure out."""
