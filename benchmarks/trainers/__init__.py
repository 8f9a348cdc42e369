"""Kinetoscope's integrations compared with the trainers' own profilers."""
