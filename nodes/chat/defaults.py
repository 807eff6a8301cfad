"""What settings of models are where nobody says otherwise. Light: the parser of the command line names them."""

KEY = "OPENAI_API_KEY"
"""The variable that has the key unless a setting names another one."""
REQUEST_SECONDS = 600.0
"""The longest that one try may take; models that think need minutes."""
