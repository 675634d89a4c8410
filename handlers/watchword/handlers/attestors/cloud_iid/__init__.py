"""An instance identity of AWS, GCP or Azure, judged by anchors in a folder and by nothing that evidence names."""
