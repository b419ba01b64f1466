"""`pdd bench`: figures of one part each, measured on this machine, printed with what produced them."""
