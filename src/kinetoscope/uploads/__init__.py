"""uploads: uploads of finished files to an object store, by a background process."""
