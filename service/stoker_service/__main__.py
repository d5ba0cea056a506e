"""``python -m stoker_service`` is the command ``stoker``."""

from stoker_service.cli import main

if __name__ == "__main__":
    main()
