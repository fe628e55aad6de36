"""`python -m rackmodel` is the command line."""

from rackmodel.cli import main

main()
