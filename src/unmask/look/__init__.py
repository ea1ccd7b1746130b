"""What is shown of runs and states: plain values, one page around them, one style for every page of ours."""
