"""Costs of the Composer compatibility layer in Composer's Trainer."""
