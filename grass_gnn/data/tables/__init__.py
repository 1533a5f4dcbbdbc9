"""Tables of molecules: files, columns, SMILES and splits."""
