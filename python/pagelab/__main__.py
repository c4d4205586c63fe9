"""`python -m pagelab`."""

from pagelab.cli import main

if __name__ == "__main__":
    main()
