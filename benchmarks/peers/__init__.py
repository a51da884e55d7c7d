"""The peers: sbi, LAMPE and a double-backward score loss in PyTorch, on the same work as ours."""
