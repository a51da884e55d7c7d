"""The benchmark of Lueckmann, Boelts, Greenberg, Goncalves and Macke (2021): ten tasks with
reference posteriors, and a classifier that tries to tell our draws from theirs.

    tasks/        the ten models, written from their formulas, each with likelihood and score
    reference.py  observations and reference draws, read from the `sbibm` wheel as plain data
    c2st.py       the metric, as the benchmark computes it
    cell.py       one task, number of simulations, method and seed: trained, sampled, measured
"""
