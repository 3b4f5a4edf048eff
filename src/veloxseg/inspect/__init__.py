"""What a trained network looks at and keeps apart: attention distances, decoded features, distances in its stages."""
