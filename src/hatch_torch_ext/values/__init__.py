"""What the stages pass on: frozen values, each made by one stage and read by later ones; nothing here acts."""
