"""Networks h(x, theta) that split into features(x) and head(features, theta)."""
