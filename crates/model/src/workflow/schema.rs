//! The JSON Schema of the workflow file, for editors.
