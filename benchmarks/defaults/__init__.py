"""How the defaults were chosen: a random search over twelve data sets, judged by leaving one set out."""
