"""Tasks as OpenAI's clients know them: chat completions, responses, models. The endpoints stand in `routes`.

Names and shapes are those of OpenAI's API; what the package `openai` checks strictly is the measure.
"""
