"""The catalogue of questions: what can be asked of a survey, with which options, in all faces."""
