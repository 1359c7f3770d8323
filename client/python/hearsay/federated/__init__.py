"""Taking part in a federated training: what is declared, updates on the wire, and the device."""

from hearsay.federated.participant import Participant
from hearsay.federated.progress import Progress
from hearsay.federated.stepping import Round, Skip, Step
from hearsay.recording.trainings import Participation

__all__ = ["Participant", "Participation", "Progress", "Round", "Skip", "Step"]
